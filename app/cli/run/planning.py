"""All that `trainshed run` can settle by itself, before any server is asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from app.cli.edge import Edge
from app.cli.figures import harmless, size
from app.cli.options import write_json
from app.cli.run.frameworks import Guess, guess_framework
from app.cli.run.missing import require_script
from app.cli.run.packing import Content, look_into
from app.cli.run.wanted import How, Labels, Place, data_of, given, requirements_of, spec_of, variables_of

_NO_CODE: Final = Guess("python", "python, since no code is sent that could tell")


@dataclass(frozen=True)
class Needs:
    """What the code needs, as it was typed."""

    framework: str | None
    data: Sequence[str]
    requirements: Path | None
    variables: Sequence[str]


@dataclass(frozen=True)
class Plan:
    """What will be sent and asked for: `content` is None without a bundle, `why` says how the framework was found."""

    spec: dict[str, Any]
    content: Content | None
    bundle_name: str
    data: Mapping[str, str]
    why: str | None


def make_plan(  # the spec's parts, each as one argument
    source: tuple[Path | None, int],
    how: How,
    needs: Needs,
    labels: Labels,
    place: Place,
    changes: Sequence[str],
    edge: Edge,
) -> Plan:
    """Look into the folder (`source` has it, or None, and the most bytes that are sent), and make the spec.

    Raises:
        UsageProblem, TooLarge: something that was asked for cannot be.
    """
    folder, limit = source
    content = None if folder is None else look_into(folder, limit)
    files = {} if content is None else content.found.files
    if folder is not None:
        require_script(how.command, files, folder)
    variables = variables_of(needs.variables, edge.environ)
    guess = _framework(needs.framework, how.command, None if folder is None else files, variables)
    environment = given(
        {"requirements": requirements_of(needs.requirements, folder, files), "variables": variables or None}
    )
    script = {**how.script, **({"environment": environment} if environment else {})}
    name = "" if folder is None else folder.resolve().name
    spec = spec_of(labels, place, guess.framework, script, changes)
    return Plan(spec, content, name, data_of(needs.data), guess.why or None)


def show_plan(plan: Plan, edge: Edge, *, as_json: bool) -> None:
    """What would be sent, file by file, and what would be asked for."""
    content = plan.content
    if as_json:
        write_json(edge, {"spec": plan.spec, "data": dict(plan.data), **(content.document if content else {})})
        return
    if content is not None:
        for name, count in content.sizes.items():
            edge.out.print(f"{size(count):>10}  {harmless(name)}")
        for name, reason in content.found.left_out.items():
            edge.out.print(f"  left out  {harmless(name)} ({reason})")
        edge.out.print(content.sentence)
    if plan.why:
        edge.out.print(f"framework: {harmless(plan.why)}")
    write_json(edge, plan.spec)


def _framework(
    asked: str | None, command: Sequence[str], files: Mapping[str, Path] | None, variables: Mapping[str, str]
) -> Guess:
    if asked is not None:
        return Guess(asked, "")
    return _NO_CODE if files is None else guess_framework(command, files, variables)
