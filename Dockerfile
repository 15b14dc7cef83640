# Weir in a container: one binary on a base image without a shell, as a user without privileges, on a root file system that may
# be read-only.
#
#   docker build -t weir .
#   docker run --read-only --cap-drop ALL -p 127.0.0.1:8081:8081 -p 127.0.0.1:8080:8080 -v ./limits:/etc/weir/limits:ro weir
#
# More in docs/deploying.md. Any base image works whose C library is not older than the build's.
ARG BUILD_BASE=docker.io/library/rust:1.95-slim-bookworm
ARG BASE=gcr.io/distroless/cc-debian12

# The manifests of the workspace, and an empty program for each target that they name: the same until a manifest changes.
FROM ${BUILD_BASE} AS manifests
WORKDIR /src
COPY . .
RUN find . -type f ! -name Cargo.toml ! -name Cargo.lock ! -name build.rs ! -path './benches/*.rs' \
        ! -path '*/src/lib.rs' ! -path '*/src/main.rs' -delete \
    && find . -name '*.rs' -exec sh -c 'echo "fn main() { }" > "$1"' _ {} \;

FROM ${BUILD_BASE} AS build
WORKDIR /src
ENV CARGO_PROFILE_RELEASE_STRIP=symbols
# `yes`: as release images are built, with fat LTO and profile-guided optimization. Less CPU a check, a build of many minutes.
ARG OPTIMIZED=
RUN if [ "$OPTIMIZED" = yes ]; then \
        apt-get update -q && apt-get install -q -y --no-install-recommends curl redis-server && rustup component add llvm-tools; \
    fi
# The dependencies are a separate layer, cached until they change.
COPY --from=manifests /src .
RUN if [ "$OPTIMIZED" != yes ]; then cargo build --locked --release --bin weir; fi
COPY . .
# Cargo detects changes by file times, and a source file may be older than the layer above.
RUN find . -name '*.rs' -not -path './target/*' -exec touch {} + \
    && mkdir -p /image/etc/weir/limits /image/usr/local/bin /image/var/lib /state /links \
    && ln -s /usr/local/bin/weir /links/ratelimit \
    && if [ "$OPTIMIZED" = yes ]; then weir=$(deploy/build-optimized); \
       else cargo build --locked --release --bin weir && weir=target/release/weir; fi \
    && cp "$weir" /image/usr/local/bin/weir \
    && cp config/limits.yaml /image/etc/weir/limits/

FROM ${BASE}
ARG VERSION=0.2.0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="Weir" \
      org.opencontainers.image.description="A rate-limit service: nested limits, decided exactly, over gRPC" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
COPY --from=build /image /
# Called by the path of envoyproxy/ratelimit's program, it serves by that one's environment variables.
COPY --from=build /links/ /bin/
# For a snapshot (store.snapshot.path): a volume mounted here belongs to the user below.
COPY --from=build --chown=65532:65532 /state /var/lib/weir
# By number, so that Kubernetes can verify that it is not root.
USER 65532:65532
# A container has its own network, so its loopback is unreachable from outside. `[::]` also accepts IPv4, and is 0.0.0.0 where there is
# no IPv6.
ENV WEIR_GRPC__LISTEN=[::]:8081 \
    WEIR_HTTP__LISTEN=[::]:8080 \
    WEIR_LIMITS=/etc/weir/limits
EXPOSE 8080 8081
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 CMD ["/usr/local/bin/weir", "health"]
ENTRYPOINT ["/usr/local/bin/weir"]
CMD ["serve"]
