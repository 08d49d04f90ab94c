FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /srv duehook
WORKDIR /srv
COPY pyproject.toml constraints.txt README.md ./
COPY app app
COPY workers workers
COPY outbox_relay outbox_relay
COPY bench bench
RUN pip install --no-cache-dir --disable-pip-version-check -c constraints.txt . && python -m compileall -q app workers outbox_relay
USER 10001
ENTRYPOINT ["duehook"]
CMD ["--help"]
