# A broker in a container: docker build -t minikafka . && docker run --rm -p 127.0.0.1:9092:9092 minikafka
#
# It listens on all of the container's interfaces, without authentication: publish its ports on 127.0.0.1 only, or
# on a network whose every machine may use it. Properties are environment variables (MINIKAFKA_LOG_RETENTION_HOURS
# for log.retention.hours) or arguments (--set log.retention.hours=24). docs/docker has compose files.
FROM python:3.13 AS wheels
# which has a C compiler
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY bin/.build.py bin/.build.py
COPY minikafka minikafka
RUN pip wheel --no-cache-dir --wheel-dir /wheels '.[zookeeper]'

FROM python:3.13-slim
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links=/wheels 'minikafka[zookeeper]'
RUN useradd --system --uid 1000 --create-home --home-dir /var/lib/minikafka minikafka
USER minikafka
WORKDIR /var/lib/minikafka
ENV MINIKAFKA_LISTENERS=PLAINTEXT://:9092 \
    MINIKAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    MINIKAFKA_LOG_DIRS=/var/lib/minikafka/data \
    MINIKAFKA_HTTP_HOST=0.0.0.0 \
    MINIKAFKA_HTTP_PORT=9404
VOLUME /var/lib/minikafka
EXPOSE 9092 9404
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9404/readyz', timeout=2)"]
ENTRYPOINT ["minikafka-broker"]
