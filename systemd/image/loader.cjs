// Runs the program beside this file: NAME.js, with the code that V8 compiled of it at the build, NAME.code. Node's own compile
// cache makes its directory at each start, which blocks while the file system is frozen (docs/decisions/002-image.md).
const { readFileSync } = require('node:fs');
const { constants, Script } = require('node:vm');

// Modules of Node's that a start does not need, but packages and sources import: together they are a third of what a bare
// node:http server costs, and 6 MiB.
const LATER = new Set(['child_process', 'crypto', 'dns', 'http2', 'https', 'tty', 'v8']);

/** What the program imports modules of Node's with: those above are loaded when a member of them is first read. */
function requireModule(name) {
  if (!LATER.has(name.replace(/^node:/, ''))) return require(name);
  let loaded;
  const later = new Proxy(
    {},
    {
      get(_, member) {
        // The bundler asks whether a module is one of its own, when it is imported.
        if (member === '__esModule') return undefined;
        loaded ??= require(name);
        return loaded[member];
      },
      // For a default import the bundler makes an object with the same prototype, which finds the members through it.
      getPrototypeOf: () => later,
    },
  );
  return later;
}

const path = __filename.slice(0, -'.cjs'.length);
// The text is ASCII. V8 compiles it anew when the code is of another V8, or of one with other flags.
exports.script = new Script(readFileSync(`${path}.js`, 'latin1'), {
  filename: `${path}.js`,
  cachedData: readFileSync(`${path}.code`),
  // For modules of Node's that the program imports when it needs them.
  importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
});
exports.script.runInThisContext()(exports, requireModule, module, __filename, __dirname);
