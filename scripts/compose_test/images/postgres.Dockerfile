# Stands in for the official postgres image: Debian's server, and the part of its entrypoint that the stack uses.
ARG PYTHON_IMAGE
FROM ${PYTHON_IMAGE}
# Debian makes a cluster of its own at installation, unless told not to.
RUN mkdir -p /etc/postgresql-common \
    && echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf \
    && apt-get update \
    && apt-get install --yes --no-install-recommends postgresql \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb \
    && ln -s /usr/lib/postgresql/*/bin /usr/lib/postgresql/bin \
    && install --directory --owner postgres --group postgres --mode 1777 /var/lib/postgresql/data \
    && install --directory --owner postgres --group postgres --mode 3777 /var/run/postgresql
ENV PATH=/usr/lib/postgresql/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PGDATA=/var/lib/postgresql/data
COPY postgres-entrypoint.sh /usr/local/bin/docker-entrypoint.sh
VOLUME /var/lib/postgresql/data
# The official image stops with SIGINT: a fast shutdown, which rolls open transactions back.
STOPSIGNAL SIGINT
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["postgres"]
