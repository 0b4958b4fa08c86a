# The API and the control loop: no framework, no pip of its own, no compiler in the image that runs.
ARG PYTHON_IMAGE=python:3.13-slim-bookworm
# Another base for the build stage alone: your package settings, certificates or compilers stay out of the image.
ARG BUILD_IMAGE

FROM ${BUILD_IMAGE:-${PYTHON_IMAGE}} AS build
# pip reads these from its environment; unset or empty means its own default.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
WORKDIR /src
COPY constraints.txt ./
RUN python -m venv /opt/pip \
    && /opt/pip/bin/pip install --no-cache-dir --upgrade --constraint constraints.txt pip
COPY pyproject.toml ./
COPY scripts/framework_environments.py scripts/
RUN /opt/pip/bin/python scripts/framework_environments.py service --extra api /opt/trainshed
# Last, and in a folder of its own: a new version of the product changes this layer alone.
COPY README.md LICENSE ./
COPY app app
COPY workers workers
COPY alembic alembic
RUN /opt/pip/bin/python scripts/framework_environments.py product /opt/product /opt/trainshed \
    && /opt/trainshed/bin/python -P -c "import app.main, app.control"

FROM ${PYTHON_IMAGE}
# The folders must belong to the user before a volume is laid over them: a new volume takes owner and mode from here.
# The setgid bit: the API (user 10001) and the worker (root without its powers) share the storage by their group.
RUN groupadd --gid 10001 trainshed \
    && useradd --uid 10001 --gid trainshed --home-dir /var/lib/trainshed --no-create-home --shell /usr/sbin/nologin trainshed \
    && install --directory --owner trainshed --group trainshed --mode 0750 /var/lib/trainshed \
    && install --directory --owner trainshed --group trainshed --mode 2770 /var/lib/trainshed/storage
COPY --from=build /opt/trainshed /opt/trainshed
COPY --from=build /opt/product /opt/product
# What the image was made from, for `trainshed_build_info`.
ARG REVISION
ENV PATH=/opt/trainshed/bin:/opt/product/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TRAINSHED_HOME=/var/lib/trainshed \
    TRAINSHED_REVISION="${REVISION}"
LABEL org.opencontainers.image.title="trainshed-api" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}"
WORKDIR /var/lib/trainshed
USER 10001:10001
EXPOSE 8000
# Exec form: the process itself gets SIGTERM, no shell swallows it.
ENTRYPOINT ["trainshed"]
CMD ["api"]
