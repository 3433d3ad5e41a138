/**
 * Commands and ingests as handlers of Hono:
 *
 *   app.post('/use-item', honoCommand(commands, useItem, { principal: (c) => c.get('user') }))
 *   app.all('/readings/*', honoIngest(ingest, { path: '/readings' }))
 */
import type { Command } from '../command/command.ts'
import type { Commands } from '../command/commands.ts'
import type { Ingest } from '../ingest/ingest.ts'
import { commandEndpoint, type CommandEndpointOptions } from './command-endpoint.ts'
import { ingestEndpoint, type IngestEndpointOptions } from './ingest-endpoint.ts'
import { readJson } from './read-json.ts'

/** The part of Hono's context we use. */
export interface HonoContext {
  readonly req: {
    header(name: string): string | undefined
    text(): Promise<string>
    readonly raw: Request
  }
}

/** A handler that runs the command with the request's JSON body as its input. */
export function honoCommand<Context extends HonoContext, Input, Output>(
  commands: Pick<Commands, 'run'>,
  command: Command<Input, Output>,
  options: CommandEndpointOptions<Context, Input>,
): (context: Context) => Promise<Response> {
  const endpoint = commandEndpoint(commands, command, options)
  return async (context) => {
    const { status, headers, body } = await endpoint({
      native: context,
      header: (name) => context.req.header(name),
      body: async () => {
        const text = await context.req.text()
        return text === '' ? undefined : (JSON.parse(text) as unknown)
      },
    })
    return new Response(body === undefined ? null : JSON.stringify(body), { status, headers })
  }
}

/** A handler of everything under `options.path`: facts by POST, their state by GET. */
export function honoIngest<Context extends HonoContext>(
  ingest: Ingest,
  options: IngestEndpointOptions<Context>,
): (context: Context) => Promise<Response> {
  const endpoint = ingestEndpoint(ingest, options)
  return async (context) => {
    const { raw } = context.req
    const { status, headers, body } = await endpoint({
      native: context,
      method: raw.method,
      url: raw.url,
      body: () => readJson(raw, ingest.limits.maxBodyBytes),
    })
    return new Response(JSON.stringify(body), { status, headers })
  }
}
