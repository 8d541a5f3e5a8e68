/** Those of `cors.exposedHeaders` of connect, which a start does not load. */
const CONNECT = [
  ...['Grpc-Status', 'Grpc-Message', 'Grpc-Status-Details-Bin'],
  ...['Content-Encoding', 'Connect-Content-Encoding'],
];
/** Response headers exposed by CORS, besides Connect's: the second line is for resuming and verifying downloads. */
const OURS = [
  ...['Location', 'Cache-Control', 'X-Content-Type-Options'],
  ...['Accept-Ranges', 'Content-Disposition', 'Content-Range', 'ETag', 'Repr-Digest'],
];

/** The value of `Access-Control-Expose-Headers`. */
export const EXPOSED_HEADERS = [...CONNECT, ...OURS].join(', ');

/**
 * The headers, names and values in turn, that the hooks `allowAnyOrigin` and `forbidCaching` of routes.ts set, for responses
 * beside Fastify. Files have validators and may be cached.
 */
export const FILE_HEAD = [
  ...['access-control-allow-origin', '*'],
  ...['access-control-expose-headers', EXPOSED_HEADERS],
];
export const DIRECT_HEAD = [...FILE_HEAD, 'cache-control', 'no-store'];
