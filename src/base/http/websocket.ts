import type { IncomingMessage } from 'node:http';

/**
 * Returns whether a request asks for a WebSocket. Other upgrades are ignored, as RFC 9110 (section 7.8) allows; so is one with a
 * body, which a WebSocket never has.
 */
export function isWebSocket({ method, headers }: IncomingMessage): boolean {
  const { upgrade, 'content-length': length = '0', 'transfer-encoding': coding } = headers;
  return method === 'GET' && upgrade?.toLowerCase() === 'websocket' && length === '0' && coding === undefined;
}
