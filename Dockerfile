# The image of both Deployments in manifests/base. Not built by the tests: they need no Docker. What they do check is that
# requirements.runtime.lock alone is enough for the in-cluster commands (tests/test_installation.py).
# Pin it in what you publish: --build-arg BASE=python:3.12-slim@sha256:…
ARG BASE=python:3.12-slim
FROM ${BASE} AS build
WORKDIR /src
COPY requirements.runtime.lock ./
RUN python -m venv /opt/drawbridge \
 && /opt/drawbridge/bin/pip install --no-cache-dir --require-hashes -r requirements.runtime.lock
COPY . .
RUN python -m venv /opt/builder \
 && /opt/builder/bin/pip install --no-cache-dir hatchling==1.33.0 \
 && /opt/builder/bin/python -m hatchling build -t wheel -d /dist \
 && /opt/drawbridge/bin/pip install --no-cache-dir --no-deps /dist/*.whl

FROM ${BASE}
COPY --from=build /opt/drawbridge /opt/drawbridge
USER 65532:65532
ENTRYPOINT ["/opt/drawbridge/bin/drawbridge"]
CMD ["--help"]
