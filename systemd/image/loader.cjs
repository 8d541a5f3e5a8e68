// Runs the program beside this file: NAME.js, and NAME-later.js when it imports that, with the code that V8 compiled of them at the
// build, NAME.code and NAME-later.code. Node's own compile cache would check and hash all, and make a directory, at each start
// (docs/decisions/063-own-loader.md).
const { closeSync, fstatSync, openSync, readSync } = require('node:fs');
const { Script } = require('node:vm');

/** A part of the program. It stays what it was when it is loaded later: its files are open from the start. */
class Part {
  constructor(path) {
    this.path = path;
    this.files = ['js', 'code'].map((extension) => openSync(`${path}.${extension}`));
    this.script = null;
  }

  /** Adds its chunks, functions by name. */
  load() {
    const [text, cachedData] = this.files.map(read);
    // The text is ASCII. Of another V8, or with other flags, the code is not used.
    const script = new Script(text.latin1Slice(), { filename: `${this.path}.js`, cachedData });
    script.runInThisContext()(chunks, require, __filename, __dirname);
    this.script = script;
    // Not before: what fails is tried again, and these numbers would be those of other files by then.
    for (const file of this.files) closeSync(file);
  }
}

function read(file) {
  const bytes = Buffer.allocUnsafeSlow(fstatSync(file).size);
  readSync(file, bytes, 0, bytes.length, 0);
  return bytes;
}

const chunks = { __proto__: null };
const loaded = { __proto__: null };
const path = __filename.slice(0, -'.cjs'.length);
const [first, later] = [new Part(path), new Part(`${path}-later`)];

/** What a chunk exports, or a module of Node's. */
function load(name) {
  if (name in loaded) return loaded[name];
  if (name === './later.js' && later.script === null) later.load();
  if (!(name in chunks)) return require(name);
  loaded[name] = {};
  try {
    chunks[name](loaded[name], load);
  } catch (error) {
    delete loaded[name];
    throw error;
  }
  return loaded[name];
}

exports.parts = [first, later];
first.load();
load('./entry.js');
