# The image of the Deployments in manifests/base: no shell, no package manager, not root. Not built by the tests: they need no Docker. What
# they do check is that requirements.runtime.lock alone is enough for the in-cluster commands (tests/test_installation.py).
# BASE and RUNTIME are of one Debian, with one Python in one place. Pin both in what you publish: --build-arg RUNTIME=...@sha256:...
ARG BASE=debian:13-slim
ARG RUNTIME=gcr.io/distroless/python3-debian13:nonroot
ARG GO=golang:1.26
FROM ${BASE} AS build
# Bytecode and the wheel have this time in them, or none: the same commit makes the same files.
ARG SOURCE_DATE_EPOCH=315532800
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH}
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv libstdc++6
WORKDIR /src
COPY requirements.build.lock requirements.runtime.lock ./
RUN python3 -m venv /opt/builder \
 && python3 -m venv --without-pip /opt/drawbridge \
 && /opt/builder/bin/pip install --no-cache-dir --require-hashes -r requirements.build.lock \
 && /opt/builder/bin/pip --python /opt/drawbridge/bin/python install --no-cache-dir --require-hashes -r requirements.runtime.lock
# RUNTIME has no C++ library, which google-re2 needs.
RUN mkdir /opt/drawbridge/libraries \
 && cp -L /usr/lib/*-linux-gnu/libstdc++.so.6 /usr/lib/*-linux-gnu/libgcc_s.so.1 /opt/drawbridge/libraries
COPY . .
RUN /opt/builder/bin/python -m hatchling build -t wheel -d /dist \
 && /opt/builder/bin/pip --python /opt/drawbridge/bin/python install --no-cache-dir --no-deps /dist/*.whl

# The scheduler with our plugin (docs/bridge.md): docker build --target scheduler .
FROM ${GO} AS scheduler-build
WORKDIR /src
COPY bridge ./
RUN version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes) && minor=${version#v1.} \
 && CGO_ENABLED=0 go build -trimpath -mod=readonly -buildvcs=false -o /drawbridge-scheduler -ldflags "-s -w \
 -X k8s.io/component-base/version.gitVersion=$version \
 -X k8s.io/component-base/version.gitMajor=1 \
 -X k8s.io/component-base/version.gitMinor=${minor%.*}" .

FROM scratch AS scheduler
COPY --from=scheduler-build /drawbridge-scheduler /drawbridge-scheduler
USER 65532:65532
ENTRYPOINT ["/drawbridge-scheduler"]

FROM ${RUNTIME}
COPY --from=build /opt/drawbridge /opt/drawbridge
ENV LD_LIBRARY_PATH=/opt/drawbridge/libraries
USER 65532:65532
ENTRYPOINT ["/opt/drawbridge/bin/drawbridge"]
CMD ["--help"]
