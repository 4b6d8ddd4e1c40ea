# docker build -t trimtab:0.1.0 --build-arg BASE=python:3.13-slim@sha256:DIGEST .
# Slim, non-root, and content with a read-only root: what it writes goes to /tmp and /var/lib/trimtab.
# A tag can be moved to another image; name the digest that you checked.
ARG BASE=python:3.13-slim
FROM ${BASE} AS made
WORKDIR /src
COPY requirements-runtime.lock requirements-build.lock ./
# Every file of the image's packages and of the tools that build it has its hash in a lock, so a package that was replaced
# on its index cannot get in. Compiled here, for a pod could keep nothing of it and would compile at each start.
RUN python -m venv --without-pip /opt/trimtab \
 && pip install --no-cache-dir --require-hashes --requirement requirements-build.lock \
 && pip --python /opt/trimtab/bin/python install --no-cache-dir --require-hashes --no-deps --requirement requirements-runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /dist . \
 && pip --python /opt/trimtab/bin/python install --no-cache-dir --no-index --no-deps /dist/*.whl
# For any processor of the architecture, because the image is built on another machine than it runs on.
ENV NUMBA_CPU_NAME=generic
RUN NUMBA_CACHE_DIR=/opt/trimtab/kernels /opt/trimtab/bin/python -m trimtab.operator.kernels

FROM ${BASE}
COPY --from=made /opt/trimtab /opt/trimtab
ENV PATH=/opt/trimtab/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 NUMBA_CACHE_DIR=/tmp/numba HOME=/tmp \
    NUMBA_SHIPPED_CACHE_DIR=/opt/trimtab/kernels NUMBA_CPU_NAME=generic
USER 65532:65532
ENTRYPOINT ["trimtab"]
