import { readFileSync } from 'node:fs';
import { request } from 'node:http';
import { parse } from 'yaml';
import { API_KEY } from '../programs/gateway.ts';

const CONFIGURATION = new URL('../../../systemd/gateway/envoy.yaml', import.meta.url);

/** Names are in lower case. */
export type Headers = Readonly<Record<string, string>>;

/** Where Envoy would send a request, and with which headers. */
export interface Carried {
  readonly cluster: string;
  readonly headers: Headers;
}

interface Named {
  readonly exact: string;
}

interface Setting {
  readonly key: string;
  readonly value: string;
}

/**
 * What the project's configuration has Envoy do with a request, as far as it decides: the headers removed at first, the question
 * of ext_authz, the headers taken from its answer, the route, the headers of the route. Not Envoy: it is not in Debian.
 */
export async function carryAsEnvoy(gatewayPort: number, target: string, sent: Headers): Promise<Carried> {
  const { static_resources: resources } = parse(readFileSync(CONFIGURATION, 'utf8'));
  const { typed_config: manager } = resources.listeners[0].filter_chains[0].filters[0];
  const authz = manager.http_filters[0].typed_config;
  const removed: readonly { readonly remove: string }[] =
    manager.early_header_mutation_extensions[0].typed_config.mutations;
  const headers = without(
    sent,
    removed.map(({ remove }) => remove),
  );

  const {
    path_prefix: prefix,
    authorization_request: asks,
    authorization_response: takes,
  } = authz.http_service;
  const added = asks.headers_to_add.map(({ key, value }: Setting) => [
    key,
    value === 'KEY' ? API_KEY : value,
  ]);
  const asked = { ...only(headers, ['host', ...exact(authz.allowed_headers)]), ...Object.fromEntries(added) };
  const answer = await get(gatewayPort, `${prefix}${target}`, asked);
  if (answer.status !== 200) return { cluster: `refused: ${answer.status}`, headers };
  const known: Headers = { ...headers, ...only(answer.headers, exact(takes.allowed_upstream_headers)) };

  const [host] = manager.route_config.virtual_hosts;
  const [routed, otherwise] = host.routes;
  const isRouted = routed.match.headers.every(({ name }: { readonly name: string }) => name in known);
  const set = host.request_headers_to_add.map(({ header }: { readonly header: Setting }) => [
    header.key,
    header.value.replace(/%REQ\((.+)\)%/, (_all, name) => known[name === ':authority' ? 'host' : name] ?? ''),
  ]);
  const kept = without(known, host.request_headers_to_remove);
  const final = {
    ...kept,
    ...Object.fromEntries(set.filter(([, value]: readonly string[]) => value !== '')),
  };
  return {
    cluster: (isRouted ? routed : otherwise).route.cluster,
    headers: without(final, manager.route_config.request_headers_to_remove),
  };
}

const exact = ({ patterns }: { readonly patterns: readonly Named[] }) =>
  patterns.map(({ exact: name }) => name);

function only(headers: Headers, names: readonly string[]): Headers {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => names.includes(name)));
}

function without(headers: Headers, names: readonly string[]): Headers {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !names.includes(name)));
}

/** fetch() would resolve the dots of the path. */
async function get(port: number, path: string, headers: Headers) {
  const { promise, resolve, reject } = Promise.withResolvers<{ status: number; headers: Headers }>();
  const outgoing = request({ host: '127.0.0.1', port, path, method: 'POST', headers }, (response) => {
    response.resume();
    resolve({ status: response.statusCode ?? 0, headers: response.headers as Headers });
  });
  outgoing.once('error', reject).end();
  return promise;
}
