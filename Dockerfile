# An image of a sandbox: Debian with systemd and the daemon. The guest test (npm run test:guest) builds its image like the
# last stage, with the same packages and scripts. `--target gateway` makes an image of the gateway instead, and
# `--build-arg volumes=yes` one of a sandbox that can mount volumes.

FROM node:24-bookworm AS build
WORKDIR /envd
# Dependencies are in a layer of their own, as sources change more often.
COPY package.json package-lock.json .npmrc ./
COPY .ci .ci
COPY native native
RUN npm run setup
COPY . .
RUN npm run build

FROM debian:bookworm-slim AS gateway
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates libatomic1 libstdc++6 \
 && rm -rf /var/lib/apt/lists/*
RUN --mount=from=build,source=/envd,target=/envd cp -R /envd/dist-gateway /opt/envd-gateway
# The embedded registry and the runs of hooks.
VOLUME /var/lib/envd-gateway
EXPOSE 49980
# A signal goes to the gateway itself, which drains.
ENTRYPOINT ["/opt/envd-gateway/bin/envd-gateway"]

FROM debian:bookworm-slim
ARG volumes=no
COPY systemd/image/packages.txt systemd/image/packages-volumes.txt /tmp/
RUN apt-get update \
 && if [ "$volumes" = no ]; then rm /tmp/packages-volumes.txt; fi \
 && cat /tmp/packages*.txt | xargs apt-get install -y --no-install-recommends \
 && rm -rf /var/lib/apt/lists/* /tmp/packages*.txt
RUN --mount=from=build,source=/envd,target=/envd sh /envd/systemd/image/install.sh /envd/dist /
EXPOSE 49983
STOPSIGNAL SIGRTMIN+3
CMD ["/sbin/init"]
