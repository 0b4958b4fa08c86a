"""What answers and exports python models on this host, made of what its attempts work with."""

from app.spec import AnyEffective, code_of
from workers.equipment import Equipment
from workers.exporting import Export
from workers.user_exporter import UserExporter
from workers.user_launch import UserCode, UserLaunch


def user_launch(equipment: Equipment) -> UserLaunch:
    """What starts their processes."""
    return UserLaunch(
        launcher=equipment.launcher,
        interpreters=equipment.interpreters,
        run_dir=equipment.run_dir,
        clock=equipment.clock,
        base=equipment.environment,
        terms=equipment.code,
        packages=equipment.environments,
    )


def exporter_for(equipment: Equipment, spec: AnyEffective) -> Export:
    """What makes the exports of a job that has just been trained."""
    code = code_of(spec)
    if code is None:
        return equipment.export
    own = UserCode(spec.framework, code)
    return UserExporter(user_launch(equipment), own, equipment.export, equipment.code.max_artifact_bytes)
