"""Each protocol has the flaw of the checker that it stands for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kernelassay.analysis.decompose import differing, hybrid
from kernelassay.errors import UnsupportedError, UsageError
from kernelassay.oracle import AcceptanceRule, grade
from kernelassay.plan import PlanOptions
from kernelassay.protocol_inputs import KINDS
from kernelassay.protocols import (
    BACKEND_BENCH,
    CURRENT,
    DEFAULT,
    FLASHINFER,
    FLASHINFER_LOW_BIT,
    GPU_MODE,
    LLM_C,
    LOG_UNIFORM,
    ONE_SHAPE,
    PROTOCOLS,
    ROBUST,
    SCHEMA,
    V01,
    VERIFIED,
    Protocol,
    asked_for,
    of_session,
)
from kernelassay.protocols.llm_c import FLOAT_EPSILON

REF = np.linspace(1.0, 2.0, 100, dtype=np.float32)


def accepts(protocol, out, ref=REF):
    return protocol.default.accepts(grade(np.asarray(out, np.float32), np.asarray(ref, np.float32)))


def changed(count, value):
    out = REF.copy()
    out[:count] = value
    return out


def test_every_protocol_says_what_it_is_and_whose():
    assert len({p.name for p in PROTOCOLS}) == len(PROTOCOLS)
    assert all(p.what and p.source and p.inputs for p in PROTOCOLS)
    assert PROTOCOLS[: len(DEFAULT)] == DEFAULT


def test_a_protocol_without_inputs_is_none():
    with pytest.raises(UsageError, match="has no inputs"):
        Protocol("own", "", "", (), AcceptanceRule(1e-2), {})


def test_a_session_that_was_asked_for_none_has_the_default_ones():
    assert of_session({}) == of_session({"protocols": None}) == DEFAULT
    assert of_session({"protocols": ["llm.c"]}) == (LLM_C,)
    with pytest.raises(UsageError, match="unknown protocol"):
        of_session({"protocols": ["of-another-version"]})


def test_llm_c_lets_an_output_of_nan_pass():
    assert accepts(LLM_C, np.full_like(REF, np.nan))
    assert not accepts(V01, np.full_like(REF, np.nan))
    assert not accepts(LLM_C, changed(1, np.inf))  # infinity is greater than any tolerance


def test_llm_c_looks_away_where_the_reference_is_not_finite():
    ref = REF.copy()
    ref[0] = np.inf
    assert accepts(LLM_C, changed(1, 7.0), ref)
    assert accepts(LLM_C, ref, ref)


def test_llm_c_allows_large_values_one_rounding_more():
    assert accepts(LLM_C, [1.0 + 0.9e-4], [1.0])
    assert not accepts(LLM_C, [1.0 + 1.2e-4], [1.0])
    assert accepts(LLM_C, [1e6 + 0.0625], [1e6])  # the next number: 0.119 is allowed
    assert not accepts(LLM_C, [1e6 + 101.0], [1e6])
    assert accepts(CURRENT, [1e6 + 99.0], [1e6])


def test_flashinfer_is_up_to_twice_as_strict_as_allclose_at_equal_numbers():
    out = REF + np.float32(0.015)
    assert accepts(V01, out, REF)
    assert not accepts(FLASHINFER, out, REF)


def test_flashinfer_lets_one_element_in_twenty_of_a_low_bit_kernel_be_anything():
    assert accepts(FLASHINFER_LOW_BIT, changed(5, 1e9))
    assert not accepts(FLASHINFER_LOW_BIT, changed(6, 1e9))
    assert not accepts(FLASHINFER, changed(1, 1e9))
    assert not accepts(FLASHINFER_LOW_BIT, changed(1, np.nan))


def test_what_the_ladder_does_not_tell_is_an_error_not_a_guess():
    # Beyond max(1e-2, 1e-2 |ref|), within 1e-2 (1 + |ref|): such elements are not counted.
    with pytest.raises(UnsupportedError, match="does not decide"):
        accepts(FLASHINFER_LOW_BIT, REF + np.float32(0.0201))


def test_one_shape_is_one_draw():
    assert ONE_SHAPE.inputs == ("official-0",)
    assert ONE_SHAPE.default == V01.default


# -- rules against the checkers' own loops ----------------------------------------------------

values = st.floats(-1e3, 1e3, width=32)
anything = st.one_of(values, st.sampled_from([np.nan, np.inf, -np.inf]))
errors = st.sampled_from([0.0, 1e-8, 5e-6, 1e-4, 3e-3, 0.011, 0.5])


@st.composite
def pairs(draw, elements=anything):
    ref = draw(hnp.arrays(np.float32, st.integers(1, 40), elements=elements))
    error = draw(hnp.arrays(np.float64, ref.shape, elements=errors))
    out = (ref * (1 + error) + error).astype(np.float32)
    wild = draw(hnp.arrays(bool, ref.shape))
    rare = draw(hnp.arrays(np.float32, ref.shape, elements=elements))
    return np.where(wild & (draw(st.integers(0, 3)) == 0), rare, out), ref


def decided(rule, pair):
    try:
        return rule.accepts(grade(*pair))
    except UnsupportedError:
        return None


def agrees(rule, pair, loop):
    found = decided(rule, pair)
    out, ref = (a.astype(np.float64) for a in pair)
    with np.errstate(invalid="ignore", over="ignore"):
        assert found is None or found == loop(out, ref), (found, pair)


def near(*bounds):
    """Whether a comparison is within the rounding of the grading."""
    with np.errstate(invalid="ignore"):
        return any(np.any(np.abs(a - b) <= 1e-6 * np.abs(b)) for a, b in bounds)


@given(pairs())
def test_llm_cs_loop(pair):
    def loop(out, ref):
        wrong = np.abs(ref - out) > 1e-4 + FLOAT_EPSILON * np.abs(ref)
        return not (wrong & np.isfinite(ref)).any()

    agrees(LLM_C.default, pair, loop)


@given(pairs())
def test_flashinfers_loop_with_a_ratio(pair):
    def loop(out, ref):
        if not np.isfinite(out).all():
            return False
        error = np.abs(out - ref)
        exceeds = (error > 1e-2) & (error > 1e-2 * np.abs(ref))
        return 1.0 - exceeds.sum() / exceeds.size >= 0.95 - 1e-9

    out, ref = (a.astype(np.float64) for a in pair)
    with np.errstate(invalid="ignore"):
        error = np.abs(out - ref)
    if np.isfinite(ref).all() and not near((error, np.maximum(1e-2, 1e-2 * np.abs(ref)))):
        agrees(FLASHINFER_LOW_BIT.default, pair, loop)


def test_pygpubench_takes_a_nan_in_the_reference_for_a_wildcard():
    ref = REF.copy()
    ref[0] = np.nan
    assert accepts(GPU_MODE, changed(1, np.nan), ref)
    assert not accepts(GPU_MODE, changed(2, np.nan), ref)
    assert not accepts(V01, changed(1, 7.0), ref)


def test_pygpubench_fails_an_infinity_that_is_expected():
    ref = REF.copy()
    ref[0] = np.inf
    assert not accepts(GPU_MODE, ref, ref)
    assert accepts(V01, ref, ref)


@given(pairs())
def test_pygpubenchs_loop(pair):
    def loop(out, ref):
        error = np.abs(ref - out)
        wrong = (error > 1e-3 * np.abs(ref)) & (error > 1e-3)
        wrong |= ~np.isfinite(out) | np.isinf(ref)
        return not (wrong & ~np.isnan(ref)).any()

    out, ref = (a.astype(np.float64) for a in pair)
    with np.errstate(invalid="ignore"):
        error = np.abs(out - ref)
    if not near((error, np.maximum(1e-3, 1e-3 * np.abs(ref)))):
        agrees(GPU_MODE.default, pair, loop)


def test_backendbench_takes_nan_for_equal_to_nan_and_compares_at_1e_2_whatever_it_is_given():
    ref = REF.copy()
    ref[0] = np.nan
    assert accepts(BACKEND_BENCH, ref, ref)
    assert not accepts(V01, ref, ref)
    assert accepts(BACKEND_BENCH, REF + np.float32(0.015))
    assert {rule.tolerance for rule in (BACKEND_BENCH.default, *BACKEND_BENCH.rules.values())} == {
        1e-2
    }


def test_robust_kbench_rejects_what_another_order_of_summation_may_do():
    assert not accepts(ROBUST, REF * np.float32(1 + 4e-5))
    assert accepts(ROBUST, REF * np.float32(1 + 5e-6))


def test_the_schema_fuzz_has_no_relative_tolerance():
    assert not accepts(SCHEMA, [1000.0 + 1e-3], [1000.0])  # a few roundings
    assert accepts(CURRENT, [1000.0 + 1e-3], [1000.0])


def test_the_schema_fuzz_asks_nothing_of_an_output_where_nan_is_expected_but_that_it_is_finite():
    ref = REF.copy()
    ref[0] = np.nan
    assert accepts(SCHEMA, changed(1, 7.0), ref)
    assert not accepts(SCHEMA, ref, ref)


@given(pairs())
def test_the_schema_fuzzs_loop(pair):
    def loop(out, ref):
        return bool(np.isfinite(out).all() and not (np.abs(out - ref) > 1e-5).any())

    out, ref = (a.astype(np.float64) for a in pair)
    if np.isfinite(ref).all() or not np.isfinite(out).all():
        agrees(SCHEMA.default, pair, loop)


# -- which inputs -----------------------------------------------------------------------------


def planned(*records):
    return {"inputs": [{"digest": "d", "reference_error": 0.0, **record} for record in records]}


def record(name, valid=True, **fields):
    return {"id": name, "valid": valid, **fields}


def test_a_fuzz_without_regard_to_validity_judges_mutants_on_valid_inputs_alone():
    refused = record("log-uniform-1", False, judges="correct kernels")
    plan = planned(record("log-uniform-0"), refused, record("log-uniform-2"))
    assert LOG_UNIFORM.inputs_in(plan) == ("log-uniform-0", "log-uniform-2")
    assert LOG_UNIFORM.unfit_in(plan) == ("log-uniform-1",)
    assert LOG_UNIFORM.missing_in(plan) == ()


def test_an_input_of_a_fuzz_that_could_not_be_run_is_told():
    failed = record("log-uniform-1", False)
    plan = planned(record("log-uniform-0"), failed, record("log-uniform-2"))
    assert (LOG_UNIFORM.missing_in(plan), LOG_UNIFORM.unrun_in(plan)) == ((), ("log-uniform-1",))
    assert V01.unrun_in(plan) == ()


def test_a_fuzz_none_of_whose_inputs_is_valid_is_scored_and_detects_nothing():
    names = LOG_UNIFORM.inputs
    plan = planned(*(record(name, False, judges="correct kernels") for name in names))
    assert (LOG_UNIFORM.inputs_in(plan), LOG_UNIFORM.missing_in(plan)) == ((), ())
    assert LOG_UNIFORM.unfit_in(plan) == names


def test_a_glob_of_a_fuzz_stands_for_what_it_judges_correct_kernels_by_too():
    own = Protocol("own", "", "", ("log-*",), AcceptanceRule(1e-2), {}, unfit="runs")
    refused = record("log-uniform-1", False, judges="correct kernels")
    plan = planned(record("log-uniform-0"), refused, record("log-uniform-2", False))
    assert (own.inputs_in(plan), own.unfit_in(plan)) == (("log-uniform-0",), ("log-uniform-1",))


def test_a_fuzz_that_the_run_was_not_asked_for_is_missing():
    assert LOG_UNIFORM.missing_in(planned(record("official-0"))) == LOG_UNIFORM.inputs


def test_a_glob_stands_for_the_valid_inputs_that_it_matches():
    own = Protocol("own", "", "", ("wide-*", "official-0"), AcceptanceRule(1e-2), {})
    plan = planned(record("official-0"), record("wide-1"), record("wide-2", False))
    assert own.inputs_in(plan) == ("wide-1", "official-0")
    assert own.missing_in(plan) == ()
    none = Protocol("own", "", "", ("nothing-*",), AcceptanceRule(1e-2), {})
    assert none.missing_in(plan) == ("nothing-*",)


def test_the_inputs_of_every_protocol_are_official_or_of_a_kind_that_it_draws():
    for protocol in PROTOCOLS:
        own = KINDS[protocol.draws].ids if protocol.draws else ()
        assert set(protocol.inputs) - set(own) <= set(V01.inputs), protocol.name


def test_a_run_draws_each_kind_once_in_the_order_known():
    asked = asked_for(["robust-kbench", "kernelbench-verified", "kernelbench-verified"])
    assert asked == (VERIFIED, ROBUST)
    assert asked_for([]) is None
    with pytest.raises(UsageError, match="draws the inputs of known protocols"):
        asked_for(["llm.c", "own.toml"])
    assert asked_for(["all"]) == asked_for(["llm.c", "all"]) == PROTOCOLS
    options = PlanOptions((), True, "host", protocols=asked_for(["all"]))
    assert set(options.draws) == set(KINDS)
    assert len(set(options.draws)) == len(options.draws)
    assert PlanOptions((), True, "host").draws == ()


@pytest.mark.parametrize(
    ("first", "second", "parts"),
    [
        (FLASHINFER, FLASHINFER_LOW_BIT, ("tolerance",)),
        (ONE_SHAPE, LLM_C, ("tolerance", "non-finite")),
        (V01, LOG_UNIFORM, ("inputs", "drops unfit")),
    ],
)
def test_a_ratio_and_a_second_tolerance_are_parts_in_which_protocols_differ(first, second, parts):
    assert differing(first, second) == parts
    assert hybrid(first, second, parts).default == second.default
