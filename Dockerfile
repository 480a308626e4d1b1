# The image of both Deployments in manifests/base. Not built by the tests: they need no Docker. What they do check is that
# requirements.runtime.lock alone is enough for the in-cluster commands (tests/test_installation.py).
FROM python:3.12-slim AS build
WORKDIR /src
COPY requirements.runtime.lock ./
RUN python -m venv /opt/drawbridge \
 && /opt/drawbridge/bin/pip install --no-cache-dir --require-hashes -r requirements.runtime.lock
COPY . .
RUN python -m venv /opt/builder \
 && /opt/builder/bin/pip install --no-cache-dir hatchling \
 && /opt/builder/bin/python -m hatchling build -t wheel -d /dist \
 && /opt/drawbridge/bin/pip install --no-cache-dir --no-deps /dist/*.whl

FROM python:3.12-slim
COPY --from=build /opt/drawbridge /opt/drawbridge
USER 65532:65532
ENTRYPOINT ["/opt/drawbridge/bin/drawbridge"]
CMD ["--help"]
