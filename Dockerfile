# An image of a sandbox: Debian with systemd and the daemon. The guest test (npm run test:guest) builds its image like the
# second stage, with the same packages and scripts.

FROM node:24-bookworm AS build
WORKDIR /envd
# Dependencies are in a layer of their own, as sources change more often.
COPY package.json package-lock.json .npmrc ./
COPY .ci .ci
COPY native native
RUN npm run setup
COPY . .
RUN npm run build

FROM debian:bookworm-slim
COPY systemd/image/packages.txt /tmp/packages.txt
RUN apt-get update \
 && xargs apt-get install -y --no-install-recommends </tmp/packages.txt \
 && rm -rf /var/lib/apt/lists/* /tmp/packages.txt
RUN --mount=from=build,source=/envd,target=/envd sh /envd/systemd/image/install.sh /envd/dist ""
EXPOSE 49983
STOPSIGNAL SIGRTMIN+3
CMD ["/sbin/init"]
