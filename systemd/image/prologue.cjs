// Comes before the daemon's bundle: V8 compiles no hot code until the daemon listens, which costs more than it gives. The modules of Node's that a start needs come first: with other flags V8
// does not take the code that Node has of them, nor the bundle's (docs/decisions/072-no-compilers-at-the-start.md).
for (const name of [
  'assert',
  'async_hooks',
  'diagnostics_channel',
  'fs/promises',
  'http',
  'module',
  'os',
  'perf_hooks',
])
  require(`node:${name}`);
for (const name of ['querystring', 'stream/promises', 'timers/promises', 'url', 'util'])
  require(`node:${name}`);
const { setFlagsFromString } = require('node:v8');
for (const compiler of ['maglev', 'turbofan', 'sparkplug']) setFlagsFromString(`--no-${compiler}`);
