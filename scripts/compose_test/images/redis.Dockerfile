# Stands in for the official redis image: Debian's server under the same user, folder and command.
ARG PYTHON_IMAGE
FROM ${PYTHON_IMAGE}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends redis-server redis-tools \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb \
    && install --directory --owner redis --group redis --mode 0755 /data
WORKDIR /data
VOLUME /data
CMD ["redis-server"]
