"""Progress on a terminal: a bar with the loss, the rate and the time left; on a plain stream a line now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

Report: TypeAlias = Callable[[dict[str, Any]], None]  # a row of the history of a training: step, steps, loss
CountReport = Callable[[str, int, int], None]  # what, how many are done, of how many

LINES = 10  # on a stream that is no terminal


@contextmanager
def training_bar(title: str) -> Iterator[Report]:
    """Progress of one training on stderr."""
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        with _bar(title, console) as report:
            yield report
    else:
        yield _lines(title, console)


@contextmanager
def counting_bar(title: str) -> Iterator[Callable[[int], None]]:
    """Progress of work whose end is not known: how many so far, on stderr."""
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    shown = TextColumn("{task.description}: {task.completed:.0f} windows, {task.fields[rate]}")
    with Bar(SpinnerColumn(), shown, TimeElapsedColumn(), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None, rate="")

        def report(count: int) -> None:
            speed = bar.tasks[task].speed
            bar.update(task, completed=count, rate=f"{speed:.0f} a second" if speed else "")

        yield report


class IndexingBar:
    """What is said while files are taken, and how far that is."""

    def __init__(self, say: Callable[[str], None], update: Callable[[float, int], None]) -> None:
        self.say, self.update = say, update  # lines; the share that is done, and windows so far


@contextmanager
def indexing_bar(*, quiet: bool = False) -> Iterator[IndexingBar]:
    """Lines on stderr, and below them a bar from the first update on; on a plain stream a line now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    if quiet:
        yield IndexingBar(lambda text: None, lambda share, windows: None)
        return
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    shown = TextColumn("{task.description}: {task.fields[windows]} windows")
    columns = (shown, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, disable=not console.is_terminal, transient=True, auto_refresh=False) as bar:
        tasks: list[TaskID] = []
        printed = 0

        def update(share: float, windows: int) -> None:
            nonlocal printed
            if not tasks:
                tasks.append(bar.add_task("encoding", total=1.0, windows=0))
            bar.update(tasks[0], completed=share, windows=windows, refresh=True)
            if not console.is_terminal and int(share * LINES) > printed:
                printed = int(share * LINES)
                console.print(f"encoding: {share:.0%}, {windows} windows")

        yield IndexingBar(console.print, update)


@contextmanager
def _bar(title: str, console: Console) -> Iterator[Report]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    shown = TextColumn("loss {task.fields[loss]}  {task.fields[rate]}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), shown, TimeRemainingColumn())
    with Bar(*columns, console=console) as bar:
        task = bar.add_task(title, total=None, loss="-", rate="")

        def report(row: dict[str, Any]) -> None:
            speed = bar.tasks[task].speed
            rate = f"{speed:.1f} steps/s" if speed else ""
            bar.update(task, total=row["steps"], completed=row["step"], loss=f"{row['loss']:.3f}", rate=rate)

        yield report


def _lines(title: str, console: Console) -> Report:
    """A line whenever another tenth of the steps is done."""
    printed = 0

    def report(row: dict[str, Any]) -> None:
        nonlocal printed
        part = row["step"] // max(row["steps"] // LINES, 1)
        if part > printed:
            printed = part
            console.print(f"{title}: step {row['step']} of {row['steps']}, loss {row['loss']:.3f}")

    return report


@contextmanager
def counting_bars(*, quiet: bool = False) -> Iterator[CountReport | None]:
    """A bar on stderr for each thing that is read; on a stream that is no terminal, one line at its end."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if quiet:
        yield None
    elif not console.is_terminal:
        yield lambda what, done, total: console.print(f"{what}: {done} of {total}") if done == total else None
    else:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Bar(*columns, console=console) as bars:
            tasks: dict[str, TaskID] = {}

            def report(what: str, done: int, total: int) -> None:
                if what not in tasks:
                    tasks[what] = bars.add_task(what, total=total)
                bars.update(tasks[what], total=total, completed=done)

            yield report
