# The API and the control loop: no framework, no compiler in the image that runs.
ARG PYTHON_IMAGE=python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
# pip reads the index from its environment; unset or empty means its own default.
ARG PIP_INDEX_URL
WORKDIR /src
RUN python -m venv /opt/trainshed
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY app app
COPY workers workers
COPY alembic alembic
RUN /opt/trainshed/bin/pip install --no-cache-dir --constraint constraints.txt ".[api]"

FROM ${PYTHON_IMAGE}
# The folder must belong to the user before a volume is laid over it: a new volume takes its owner from here.
RUN groupadd --gid 10001 trainshed \
    && useradd --uid 10001 --gid trainshed --home-dir /var/lib/trainshed --no-create-home --shell /usr/sbin/nologin trainshed \
    && install --directory --owner trainshed --group trainshed --mode 0750 /var/lib/trainshed
COPY --from=build /opt/trainshed /opt/trainshed
ENV PATH=/opt/trainshed/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TRAINSHED_HOME=/var/lib/trainshed
WORKDIR /var/lib/trainshed
USER 10001:10001
EXPOSE 8000
# Exec form: the process itself gets SIGTERM, no shell swallows it.
ENTRYPOINT ["trainshed"]
CMD ["api"]
