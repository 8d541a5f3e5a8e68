import type { DescMessage, DescMethodUnary } from '@bufbuild/protobuf';
import {
  type ConnectError,
  type ConnectRouter,
  type ContextValues,
  createContextKey,
  type Interceptor,
} from '@connectrpc/connect';
import { untilAborted } from '../../base/abort.ts';
import { Filesystem } from '../../gen/filesystem/filesystem_pb.js';
import { Process } from '../../gen/process/process_pb.js';
import type { WriteGate } from '../services/freeze/write-gate.ts';
import type { ProcessTable } from '../services/process/table.ts';
import type { StreamExchange, StreamServer } from './connect-stream.ts';
import { type UnaryMethod, type UnaryRoute, unaryRoute } from './connect-unary.ts';
import { toConnectError } from './errors.ts';
import { type EventStream, viaConnect } from './event-stream.ts';
import { filesystemService } from './filesystem.ts';
import { processService } from './process.ts';
import { connectStream, startStream } from './process-streams.ts';
import { callerOf, type RequestHeaders } from './request.ts';
import { type WatchDependencies, watchDirStream, watcherService } from './watch.ts';

export interface RpcDependencies extends WatchDependencies {
  readonly processes: ProcessTable;
  readonly gate: WriteGate;
  readonly streams: StreamServer;
}

/** A stream that is served without connect-node. */
export interface StreamRoute {
  readonly path: string;
  /** Resolves with the error that ended the stream, or null. */
  serve(exchange: StreamExchange): Promise<unknown>;
}

/** All RPCs: `streams` and `unary` for the Connect protocol; `register` adds them to connect-node for the others. */
export interface Rpc {
  register(router: ConnectRouter): void;
  readonly streams: readonly StreamRoute[];
  readonly unary: readonly UnaryRoute[];
}

export function createRpc(dependencies: RpcDependencies): Rpc {
  const { processes, guest, streams } = dependencies;
  const start = startStream(processes, guest);
  const connect = connectStream(processes);
  const watchDir = watchDirStream(dependencies);
  const userOf = (context: { requestHeader: RequestHeaders }) => callerOf(context.requestHeader, guest);
  const processCalls = processService(processes);
  const filesystemCalls = {
    ...filesystemService({ ...dependencies, userOf }),
    ...watcherService(dependencies),
  };
  return {
    streams: [route(streams, start), route(streams, connect), route(streams, watchDir)],
    unary: [...processRoutes(processCalls), ...filesystemRoutes(filesystemCalls)],
    register(router) {
      const interceptors = [translateErrors];
      const processRpcs = { ...processCalls, start: viaConnect(start), connect: viaConnect(connect) };
      router.service(Process, processRpcs, { interceptors });
      const filesystemRpcs = { ...filesystemCalls, watchDir: viaConnect(watchDir) };
      router.service(Filesystem, filesystemRpcs, {
        interceptors,
        jsonOptions: { ignoreUnknownFields: false },
      });
    },
  };
}

function processRoutes(calls: ReturnType<typeof processService>): UnaryRoute[] {
  const { list, update, sendInput, sendSignal, closeStdin } = Process.method;
  // Newer clients send properties that are not known.
  const unary = <I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    handle: UnaryMethod<I, O>['handle'],
  ) => unaryRoute({ method, handle, ignoreUnknownFields: true, isOwnJson: true });
  return [
    unary(list, calls.list),
    unary(update, calls.update),
    unary(sendInput, calls.sendInput),
    unary(sendSignal, calls.sendSignal),
    unary(closeStdin, calls.closeStdin),
  ];
}

type FilesystemCalls = ReturnType<typeof filesystemService> & ReturnType<typeof watcherService>;

function filesystemRoutes(calls: FilesystemCalls): UnaryRoute[] {
  const { stat, makeDir, move, listDir, remove } = Filesystem.method;
  const { createWatcher, getWatcherEvents, removeWatcher } = Filesystem.method;
  // The interface forbids unknown properties.
  const unary = <I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    handle: UnaryMethod<I, O>['handle'],
  ) => unaryRoute({ method, handle, ignoreUnknownFields: false });
  return [
    unary(stat, calls.stat),
    unary(makeDir, calls.makeDir),
    unary(move, calls.move),
    unary(listDir, calls.listDir),
    unary(remove, calls.remove),
    unary(createWatcher, calls.createWatcher),
    unary(getWatcherEvents, calls.getWatcherEvents),
    unary(removeWatcher, calls.removeWatcher),
  ];
}

function route<E, I extends DescMessage, O extends DescMessage>(
  streams: StreamServer,
  stream: EventStream<E, I, O>,
): StreamRoute {
  const { parent, name } = stream.method;
  return { path: `/${parent.typeName}/${name}`, serve: (exchange) => streams.serve(stream, exchange) };
}

/** Receives the error of a call served by connect-node, before the response is sent. */
export const ON_FAILURE = createContextKey<(error: unknown) => void>(() => {});

/** Converts errors to errors of Connect, and ends unary calls at their deadline. */
const translateErrors: Interceptor = (next) => async (request) => {
  try {
    const response = await untilAborted(next(request), request.signal);
    if (!response.stream) return response;
    return { ...response, message: translated(response.message, request.contextValues) };
  } catch (error) {
    throw translate(error, request.contextValues);
  }
};

function translate(error: unknown, values: ContextValues): ConnectError {
  values.get(ON_FAILURE)(error);
  return toConnectError(error);
}

async function* translated<T>(messages: AsyncIterable<T>, values: ContextValues): AsyncGenerator<T> {
  try {
    yield* messages;
  } catch (error) {
    throw translate(error, values);
  }
}
