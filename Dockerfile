# docker build -t trimtab:0.1.0 --build-arg BASE=python:3.13-slim@sha256:DIGEST --build-arg BUILD=python:3.13@sha256:DIGEST .
# Slim, non-root, and content with a read-only root: what it writes goes to /tmp and /var/lib/trimtab.
# A tag can be moved to another image; name the digest that you checked.
ARG BASE=python:3.13-slim
# The same Python and C library, with a compiler.
ARG BUILD=python:3.13
FROM ${BUILD} AS made
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
RUN NUMBA_CPU_NAME=generic NUMBA_CACHE_DIR=/tmp/numba /opt/trimtab/bin/python -m trimtab.operator.kernels /opt/trimtab/kernels

FROM ${BASE}
COPY --from=made /opt/trimtab /opt/trimtab
ENV PATH=/opt/trimtab/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 NUMBA_CACHE_DIR=/tmp/numba HOME=/tmp \
    KERNEL_LIBRARY_DIR=/opt/trimtab/kernels
USER 65532:65532
ENTRYPOINT ["trimtab"]
