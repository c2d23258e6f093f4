"""The verb doctor."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING

from memkern.cli.measuring import exit_code, show_progress
from memkern.cli.options import FAILED, FORCE, GOOD, MANAGE, METRICS, argument, verb
from memkern.machine.health import DISTURBED

if TYPE_CHECKING:
    from memkern.studies.doctor import Health


def _doctor(args: argparse.Namespace) -> int:
    from memkern.formats.store import check_output
    from memkern.formats.values import jsonable
    from memkern.results.exchange import metrics_file, write_openmetrics
    from memkern.studies.doctor import doctor

    if args.output:
        check_output(args.output, args.force)
    if args.openmetrics:
        metrics_file(args.openmetrics)
    with show_progress(args) as progress:
        found = doctor(quick=args.quick, baseline=args.baseline, progress=progress)
    if args.output:
        found.results.save(args.output)
    if args.openmetrics:
        healthy = found.verdict != DISTURBED and found.results.valid and not found.worse
        write_openmetrics(args.openmetrics, found.results, healthy, found.verdict)
    if args.json:
        document = {
            "verdict": found.verdict,
            "findings": [dataclasses.asdict(finding) for finding in found.findings],
            "records": jsonable(found.results.records),
        }
        print(json.dumps(document, indent=1, allow_nan=False))
    elif args.quiet:
        print(found.summary)
    else:
        print(f"{found}\ntook {found.seconds:.1f} s")
        if args.baseline:
            print(_answer(found, args.baseline))
    if found.results.interrupted or not found.results.valid:
        return exit_code(found.results)
    # A gate without any verdict does not pass.
    return FAILED if args.baseline and (found.worse or not found.judged) else GOOD


def _answer(found: Health, baseline: str) -> str:
    """Return the sentence on whether the machine is slower than in the baseline."""
    if found.worse:
        return f"this machine is slower than in {baseline}: see the finding on the baseline"
    if found.judged:
        return f"this machine is not slower than in {baseline}"
    return f"whether this machine is slower than in {baseline} can't be told: no case was judged"


DOCTOR_VERB = verb(
    "doctor",
    MANAGE,
    "check whether this machine is fit for measuring, and give advice",
    _doctor,
    (
        "memkern doctor",
        "memkern doctor --quick -o week.db",
        "memkern doctor --baseline week.db",
    ),
    argument("--quick", action="store_true", help="within 5 s instead of 24 s"),
    argument(
        "--baseline",
        metavar="FILE",
        help="compare with the records that an earlier check of this machine wrote with -o; exit "
        "code 3 if a case is slower, or if none could be judged",
    ),
    argument("-o", "--output", metavar="PATH", help=".db, .parquet, .csv or .json"),
    METRICS,
    argument("--json", action="store_true", help="verdict, findings and records as JSON"),
    FORCE,
    argument("-q", "--quiet", action="store_true", help="verdict in one line, no progress"),
)
