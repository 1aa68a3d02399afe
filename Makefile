# Two commands: `make audit` measures, `make test` checks. Both make the environment if missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
SESSION ?= sessions/quick

.PHONY: audit test lint suite clean

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[nvrtc]' \
		|| echo "note: NVRTC cannot be installed here; equivalence will be told by the host compiler"
	touch $@

# The quick selection of our own problems, end to end, and the score of the official check.
audit: $(VENV)/ready
	$(BIN)/kernelassay run --quick --jobs $(JOBS) --session $(SESSION)
	$(BIN)/kernelassay audit $(SESSION)

# The whole suite.
suite: $(VENV)/ready
	$(BIN)/kernelassay run --jobs $(JOBS) --session sessions/suite
	$(BIN)/kernelassay audit sessions/suite

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

clean:
	rm -rf $(VENV) sessions .pytest_cache .mypy_cache .ruff_cache .hypothesis
