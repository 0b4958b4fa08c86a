# The same, for build stages alone: with pip, and with this host's package settings, which no final image takes along.
ARG PYTHON_IMAGE
FROM ${PYTHON_IMAGE}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-pip \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
COPY pip.conf /etc/pip.conf
COPY certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY wheels /srv/wheels
