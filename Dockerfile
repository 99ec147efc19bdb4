# docker build -t dynatrain .
# docker run --rm -it -v "$PWD/runs:/job/runs" dynatrain run configs/quickstart/job.toml
FROM debian:12 AS build
RUN apt-get update && apt-get install -y --no-install-recommends make
WORKDIR /src
# The packages first: they change less often than the sources.
COPY scripts/bootstrap.sh scripts/again.sh scripts/packages.txt scripts/
RUN scripts/bootstrap.sh
COPY . .
RUN make build && build/rel/bin/dynatrain model init --preset tiny --out build/models/tiny

FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends \
      libdnnl2 libzmq5 libmsgpackc2 libjansson4 libpcre2-8-0 libutf8proc2 libxxhash0 libgomp1 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /src/build/rel/bin/dynatrain /usr/local/bin/dynatrain
COPY --from=build /src/configs /job/configs
COPY --from=build /src/build/models /job/build/models
WORKDIR /job
ENTRYPOINT ["dynatrain"]
CMD ["--help"]
