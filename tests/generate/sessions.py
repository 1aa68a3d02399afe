"""Small real sessions, whose official inputs miss faults that others show."""

from kernelassay import campaign as campaigns
from kernelassay.mutation import select
from kernelassay.plan import PlanOptions
from kernelassay.session import Session
from kernelassay.suite import suite_problems
from tests.test_campaign import Silent

RULES = ("fp16-store-temp", "fp16-load-temp", "guard-off-by-one-loose", "int-const-plus-one")


def problem(name):
    return next(one for one in suite_problems() if one.id == name)


def measured(root, *names):
    """A session of some problems, on the official inputs and three more."""
    backend = campaigns.identity_backend()
    options = PlanOptions(select(RULES), quick=True, backend=backend, max_inputs=8)
    plan = campaigns.Campaign(tuple(map(problem, names)), options, jobs=1)
    session = Session.create(root, plan.manifest())
    try:
        campaigns.run(plan, session, Silent())
    finally:
        session.close()
    return Session.open(root)
