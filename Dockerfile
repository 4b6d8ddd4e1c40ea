# docker build -t trimtab:0.1.0 .
# Slim, non-root, and content with a read-only root: what it writes goes to /tmp and /var/lib/trimtab.
FROM python:3.13-slim AS made
WORKDIR /src
COPY requirements.lock pyproject.toml README.md LICENSE ./
COPY src src
# What the operator and the agent need, at the versions and hashes of the lock; PostgreSQL for a shared store. Compiled
# here, for a pod could keep nothing of it and would compile at each start.
RUN pip install --no-cache-dir uv \
 && uv venv /opt/trimtab \
 && uv pip compile --quiet --universal --no-header --generate-hashes --extra postgres --constraint requirements.lock \
      pyproject.toml --output-file /tmp/needed.lock \
 && uv pip install --compile-bytecode --python /opt/trimtab --require-hashes --requirement /tmp/needed.lock \
 && uv pip install --compile-bytecode --python /opt/trimtab --no-deps .

FROM python:3.13-slim
COPY --from=made /opt/trimtab /opt/trimtab
ENV PATH=/opt/trimtab/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 NUMBA_CACHE_DIR=/tmp/numba HOME=/tmp
USER 65532:65532
ENTRYPOINT ["trimtab"]
