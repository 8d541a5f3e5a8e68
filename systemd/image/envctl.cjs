'use strict';
const { homedir } = require('node:os');
const { join } = require('node:path');
// V8's code of the program is kept in the user's cache: the next start takes half the time. The directory that Node would take by
// itself is one of all users.
// biome-ignore lint/style/noProcessEnv: the program, which reads all other variables, is not loaded yet.
const cache = process.env.XDG_CACHE_HOME || join(homedir(), '.cache');
require('node:module').enableCompileCache(join(cache, 'envctl'));
require('./program.cjs');
