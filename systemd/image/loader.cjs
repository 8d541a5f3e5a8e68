// Runs the program beside this file: NAME.js, with the code that V8 compiled for it during the build, NAME.code. Node's own
// compile cache creates its directory at each start, which blocks while the file system is frozen (docs/decisions/002-image.md).
const { readFileSync } = require('node:fs');
const { constants, Script } = require('node:vm');

// A start does not need these modules of Node, but packages and sources import them. Together they would take a third of the
// CPU time of a bare node:http server's start, and 6 MiB.
const LATER = new Set(['child_process', 'crypto', 'dns', 'http2', 'https', 'tty', 'v8', 'zlib']);
// Packages wrap these functions of zlib when they are loaded, and call them later.
const CALLED_LATER = new Set(['gzip', 'gunzip', 'brotliCompress', 'brotliDecompress']);

/** Imports a module of Node for the program. A module of the list above is loaded when the program first reads a member of it. */
function requireModule(name) {
  if (!LATER.has(name.replace(/^node:/, ''))) return require(name);
  let loaded;
  const load = () => {
    loaded ??= require(name);
    return loaded;
  };
  const later = new Proxy(
    {},
    {
      get(_, member) {
        // The bundler's code reads this of each module that it imports, to learn whether it is an ES module.
        if (member === '__esModule') return undefined;
        if (CALLED_LATER.has(member)) return (...values) => load()[member](...values);
        return load()[member];
      },
      // For a default import the bundler's code makes an object with the same prototype, and finds the members through it.
      getPrototypeOf: () => later,
    },
  );
  return later;
}

const path = __filename.slice(0, -'.cjs'.length);
// The text is ASCII. V8 compiles it again when the code comes from another version of V8, or from one with other flags.
exports.script = new Script(readFileSync(`${path}.js`, 'latin1'), {
  filename: `${path}.js`,
  cachedData: readFileSync(`${path}.code`),
  // The program also imports modules of Node when it needs them.
  importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
});
exports.script.runInThisContext()(exports, requireModule, module, __filename, __dirname);
