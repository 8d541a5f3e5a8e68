// An operation of the daemon needs the access token, and a gateway passes it on, unless these lists say otherwise.

/** The operations that need no access token. `/init` and file transfers check tokens and signatures themselves. */
export const WITHOUT_TOKEN: ReadonlySet<string> = new Set([
  'GET /health',
  'HEAD /health',
  'POST /init',
  'GET /files',
  'HEAD /files',
  'POST /files',
]);

/** The operations that a gateway passes on for the platform alone. */
export const PLATFORM_ONLY: ReadonlySet<string> = new Set([
  '/init',
  '/freeze',
  '/unfreeze',
  '/collapse',
  '/fsfreeze',
  '/fsthaw',
  '/upgrade',
]);
