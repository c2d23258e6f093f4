"""A static site of many machines' reports, to which anybody can add results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from memkern import progress as progress_module
from memkern.errors import InputError
from memkern.files import publish
from memkern.formats import ResultSet, load
from memkern.machine.environment import machine_label, platform_label
from memkern.models.merit import FigureOfMerit, figures_of_merit
from memkern.plots.frames import three_figures, with_samples
from memkern.report.page import template, write_sides
from memkern.report.sides import sides

# Columns and parts of environments that may name hosts, users, programs or files.
_PRIVATE = ("hosts", "shared_with", "rank_rows", "machine_file", "comm_transport", "name")
_PRIVATE_RUN = ("hostname", "cpus_allowed")


def add(file: str | Path, folder: Path) -> Path:
    """Copy results into a gallery as a bundle without the names of hosts, users and programs.

    Parameters
    ----------
    file : path-like
        Results of one machine.
    folder : Path
        The gallery, which is created if it does not exist.

    Returns
    -------
    Path
        The bundle, named by its processor and the machine's environment.

    Raises
    ------
    InputError
        The file can't be read or has no record, is of several machines, or the bundle exists.
    """
    results = load(file)
    if not len(results):
        raise InputError(f"{file} has no record")
    environment = _environment(results, file)
    records = [
        {name: value for name, value in record.items() if name not in _PRIVATE}
        for record in results
    ]
    public = {name: part for name, part in environment.items() if name != "ranks"} | {
        "run": {
            name: value
            for name, value in (environment.get("run") or {}).items()
            if name not in _PRIVATE_RUN
        }
    }
    bundle = ResultSet(records, results.samples, dict.fromkeys(results.environments, public))
    folder.mkdir(parents=True, exist_ok=True)
    label = re.sub(r"[^a-z0-9]+", "-", _label(environment).lower())
    target = folder / f"{label.strip('-')}-{next(iter(results.environments))[:8]}.parquet"
    if target.exists():
        raise InputError(f"{target} exists: this machine's results are in the gallery already")
    bundle.save(target)
    return target


def _label(environment: dict[str, Any]) -> str:
    return machine_label(platform_label(environment, 1))


def _environment(results: ResultSet, file: str | Path) -> dict[str, Any]:
    """Return the last environment of the results of one machine."""
    found = [*results.environments.values()]
    if not found:
        raise InputError(f"{file} does not describe its machine: a bundle is of memkern's results")
    models = {str((each.get("machine") or {}).get("model")) for each in found}
    if len(models) > 1:
        raise InputError(f"{file} is of several machines ({', '.join(sorted(models))})")
    return found[-1]


def write(folder: Path, *, progress: bool = False) -> Path:
    """Write the pages of a gallery: an index, and a report for each bundle.

    A report that is newer than its bundle is kept.

    Parameters
    ----------
    folder : Path
        Folder with bundles.
    progress : bool
        Whether to show progress.

    Returns
    -------
    Path
        ``index.html``.

    Raises
    ------
    InputError
        There is no bundle, or one can't be read.
    """
    bundles = sorted(
        path for path in folder.glob("*.parquet") if not path.name.endswith(".samples.parquet")
    )
    if not bundles:
        raise InputError(
            f"{folder} has no bundle: memkern report gallery {folder} --add RESULTS adds one"
        )
    rows, columns = [], {}
    bar = progress_module.bar(progress or None, total=len(bundles), unit="reports")
    for bundle in bundles:
        results = load(bundle)
        environment = _environment(results, bundle)
        page = bundle.with_suffix(".html")
        if not page.exists() or page.stat().st_mtime < bundle.stat().st_mtime:
            write_sides(sides([results], [bundle.stem]), page, data=bundle)
        figures = figures_of_merit(with_samples(results))
        columns.update({figure.name: figure for figure in figures})
        rows.append(_row(page, environment, results, figures))
        bar.update()
    bar.close()
    html = template("gallery.html.j2").render(
        rows=rows,
        columns=[
            (figure.name, f"{figure.title} ({figure.unit})")
            for figure in sorted(columns.values(), key=lambda figure: figure.order)
        ],
    )
    target = folder / "index.html"
    publish({target: html.encode()})
    return target


def _row(
    page: Path, environment: dict[str, Any], results: ResultSet, figures: list[FigureOfMerit]
) -> dict[str, Any]:
    """Return a machine in the table of a gallery."""
    machine = environment.get("machine") or {}
    threads = max((int(record.get("threads") or 0) for record in results), default=0)
    return {
        "page": page.name,
        "name": _label(environment),
        "measured": min((str(record.get("started") or "") for record in results), default="")[:10],
        "cores": f"{threads} of {machine.get('threads') or '?'}",
        "figures": {figure.name: three_figures(figure.value) for figure in figures},
    }
