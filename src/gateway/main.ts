import { runAs } from '../base/program/main.ts';
import { run } from './run.ts';

// Not awaited: the build makes a CommonJS file of this.
void runAs('envd-gateway', run);
