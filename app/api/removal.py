"""Deleting a job."""

from fastapi import Response

from app.api.filters import JobId
from app.api.openapi import problems
from app.api.routing import api_router
from app.api.services import PrincipalDep, ServicesDep
from app.retention.deletion import delete_job

router = api_router(prefix="/v1/jobs", tag="Jobs")


@router.delete("/{job_id}", status_code=204, summary="Delete a job", responses=problems("state_conflict", "job_needed"))
def remove_job(job_id: JobId, services: ServicesDep, principal: PrincipalDep) -> Response:
    """Gone for good, with its history, checkpoints and files. Only a job that is over, and that no other needs."""
    delete_job(services.database, services.storage, principal.project_id, job_id)
    return Response(status_code=204)
