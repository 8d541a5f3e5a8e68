// Comes before the daemon's bundle. Compiling hot code during a start costs more than it gives: V8's compilers are off until
// the daemon listens and has its routes (run.ts, optimiseHotCode in os/self.ts). Node's modules that a start needs,
// and those of the routes, are loaded before that: with other flags V8 refuses the code of them that Node's binary has
// (docs/decisions/072-no-compilers-at-the-start.md).
// biome-ignore format: a name a line is longer than what is done with them
const NEEDED = [
  'async_hooks', 'diagnostics_channel', 'fs/promises', 'http', 'module', 'os', 'querystring',
  'stream/promises', 'timers/promises', 'url', 'util',
];
for (const name of NEEDED) require(`node:${name}`);
const { setFlagsFromString } = require('node:v8');
for (const compiler of ['maglev', 'turbofan', 'sparkplug']) setFlagsFromString(`--no-${compiler}`);
