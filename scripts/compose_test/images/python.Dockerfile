# Stands in for python:3-slim where no registry can be reached: Debian's Python under the name `python`.
ARG RAW_IMAGE
FROM ${RAW_IMAGE}
RUN ln -s python3 /usr/bin/python
CMD ["python3"]
