// Runs the program beside this file, NAME.js, with the code that V8 compiled of it at the build, NAME.code. Node's own compile
// cache would check and hash both, and make a directory, at each start (docs/decisions/010-image-bundle.md).
const { readFileSync } = require('node:fs');
const { Script } = require('node:vm');

const filename = __filename.replace(/cjs$/, 'js');
const cachedData = readFileSync(__filename.replace(/cjs$/, 'code'));
// The text is ASCII. Of another V8, or with other flags, the code is not used.
const script = new Script(readFileSync(filename, 'latin1'), { filename, cachedData });
exports.script = script;
script.runInThisContext().call(exports, exports, require, module, __filename, __dirname);
