import { runAs } from '../base/program/main.ts';
import { runKubernetes } from './run.ts';

// The promise is not awaited, because the build makes a CommonJS file of this module.
void runAs('envd-kubernetes', runKubernetes);
