import { runAs } from '../base/program/main.ts';
import { runGateway } from './run.ts';

// The promise is not awaited, because the build makes a CommonJS file of this module.
void runAs('envd-gateway', runGateway);
