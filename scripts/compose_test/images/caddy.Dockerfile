# Stands in for the official caddy image: Debian's server with the same folders and command.
ARG PYTHON_IMAGE
FROM ${PYTHON_IMAGE}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends caddy wget \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
ENV XDG_CONFIG_HOME=/config \
    XDG_DATA_HOME=/data
VOLUME /config /data
CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]
