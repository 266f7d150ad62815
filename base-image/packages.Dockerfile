# A locked list of wheels as /opt/venv on the base image; one such image under each image that runs Python or Caddy.
# No network: the host's pip has filled the wheelhouse. The wheels themselves stay behind in the first stage.
ARG BASE
FROM ${BASE} AS wheels
LABEL warmstack.stage=wheels
COPY wheelhouse /wheelhouse
RUN set -eu; \
    python3 -m venv /opt/venv; \
    /opt/venv/bin/python -m pip install --no-index --no-deps --no-compile --no-cache-dir --disable-pip-version-check \
        --quiet /wheelhouse/*.whl
COPY slim /slim
# Bytecode here, once, on all cores: a start of vLLM imports some thousand modules, and the root is read-only then.
# Its exit code says nothing: some packages ship templates that are no valid Python.
RUN set -eu; \
    cd /opt/venv/lib/python3*/site-packages; \
    while read -r pattern; do case "$pattern" in ''|'#'*) ;; *) rm -rf $pattern;; esac; done </slim; \
    /opt/venv/bin/python -m compileall -q -j 0 . >/dev/null || true

FROM ${BASE}
COPY --from=wheels /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
