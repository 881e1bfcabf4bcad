"""The study: every table and figure of the paper, and what it left out, as jobs, rows, tables and claims."""

from geopatch_lab.study.jobs import Job, Scope, jobs

__all__ = ["Job", "Scope", "jobs"]
