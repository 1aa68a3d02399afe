"""Engines: where a campaign's work is done. Lanes and their agenda stay with the coordinator."""

from kernelassay.engines.agenda import Agenda, Unit, Work
from kernelassay.engines.lanes import Lane, Reporter
from kernelassay.engines.local import LocalEngine
from kernelassay.engines.station import Engine, Station, WorkLostError

__all__ = [
    "Agenda",
    "Engine",
    "Lane",
    "LocalEngine",
    "Reporter",
    "Station",
    "Unit",
    "Work",
    "WorkLostError",
]
