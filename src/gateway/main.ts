import { runAs } from '../base/program/main.ts';
import { runGateway } from './run.ts';

// Not awaited: the build makes a CommonJS file of this.
void runAs('envd-gateway', runGateway);
