# The image of both Deployments in manifests/base. Not built by the tests: they need no Docker. What they do check is that
# requirements.runtime.lock alone is enough for the in-cluster commands (tests/test_installation.py).
# Pin it in what you publish: --build-arg BASE=python:3.12-slim@sha256:…
ARG BASE=python:3.12-slim
ARG GO=golang:1.26
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

# The scheduler with our plugin (docs/bridge.md): docker build --target scheduler .
FROM ${GO} AS scheduler-build
WORKDIR /src
COPY bridge ./
RUN CGO_ENABLED=0 go build -trimpath -mod=readonly -buildvcs=false -o /drawbridge-scheduler -ldflags "-s -w \
 -X k8s.io/component-base/version.gitVersion=v1.37.1 \
 -X k8s.io/component-base/version.gitMajor=1 \
 -X k8s.io/component-base/version.gitMinor=37" .

FROM scratch AS scheduler
COPY --from=scheduler-build /drawbridge-scheduler /drawbridge-scheduler
USER 65532:65532
ENTRYPOINT ["/drawbridge-scheduler"]

FROM ${BASE}
COPY --from=build /opt/drawbridge /opt/drawbridge
USER 65532:65532
ENTRYPOINT ["/opt/drawbridge/bin/drawbridge"]
CMD ["--help"]
