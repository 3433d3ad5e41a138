/**
 * Commands and ingests as handlers of Hono:
 *
 *   app.post('/use-item', honoCommand(commands, useItem, { principal: (c) => c.get('user') }))
 *   app.all('/readings/*', honoIngest(ingest, { path: '/readings' }))
 */
import type { Command } from '../command/model/command.ts'
import type { Commands } from '../command/commands.ts'
import type { Ingest } from '../ingest/ingest.ts'
import { commandEndpoint, maxCommandBytes, type CommandEndpointOptions } from './command-endpoint.ts'
import { ingestEndpoint, type IngestEndpointOptions } from './ingest-endpoint.ts'
import { requestHeader } from './node-headers.ts'
import { toResponse } from './to-response.ts'
import { assertExact } from '../core/encoding/exact-json.ts'
import { parseJson, readJson } from '../core/encoding/read-json.ts'

export type { CommandEndpointOptions } from './command-endpoint.ts'
export type { IngestEndpointOptions } from './ingest-endpoint.ts'

/** The part of Hono's context we use. */
export interface HonoContext {
  readonly req: {
    text(): Promise<string>
    readonly raw: Request
    /** What was read of the body. */
    readonly bodyCache?: object
  }
}

/** A handler that runs the command with the request's JSON body as its input. */
export function honoCommand<Context extends HonoContext, Input, Output>(
  commands: Pick<Commands, 'run'>,
  command: Command<Input, Output>,
  options: CommandEndpointOptions<Context, Input>,
): (context: Context) => Promise<Response> {
  const endpoint = commandEndpoint(commands, command, options)
  return async (context) =>
    toResponse(
      await endpoint({
        native: context,
        header: requestHeader(context.req.raw),
        body: () => bodyOf(context.req, maxCommandBytes),
        signal: context.req.raw.signal,
      }),
    )
}

/** A middleware may have read the body; Hono then keeps it for those who come later. */
async function bodyOf(request: HonoContext['req'], maxBytes: number): Promise<unknown> {
  const { raw, bodyCache = {} } = request
  const isRead = raw.bodyUsed || Object.keys(bodyCache).length > 0
  // What was parsed is written anew for those who want the text.
  if ('json' in bodyCache) assertExact(await bodyCache.json)
  return isRead ? parseJson(await request.text(), maxBytes) : await readJson(raw, maxBytes)
}

/** A handler of everything under `options.path`: facts by POST, their state by GET. */
export function honoIngest<Context extends HonoContext>(
  ingest: Ingest,
  options: IngestEndpointOptions<Context>,
): (context: Context) => Promise<Response> {
  const endpoint = ingestEndpoint(ingest, options)
  return async (context) => {
    const { raw } = context.req
    return toResponse(
      await endpoint({
        native: context,
        method: raw.method,
        url: raw.url,
        header: requestHeader(raw),
        body: () => bodyOf(context.req, ingest.limits.maxBodyBytes),
      }),
    )
  }
}
