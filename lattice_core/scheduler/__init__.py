"""The scheduler: a state machine over rows that plans each forward pass, samples, and turns tokens into events."""

from lattice_core.scheduler.constraint import Constraint
from lattice_core.scheduler.row import Row
from lattice_core.scheduler.scheduler import Scheduler, SchedulerConfig

__all__ = ["Constraint", "Row", "Scheduler", "SchedulerConfig"]
