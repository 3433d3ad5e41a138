/**
 * A command as a handler of Hono: `app.post('/use-item', honoCommand(commands, useItem, { principal: (c) => c.get('user') }))`.
 */
import type { Command } from '../command/command.ts'
import type { Commands } from '../command/commands.ts'
import { commandEndpoint, type CommandEndpointOptions } from './command-endpoint.ts'

/** The part of Hono's context we use. */
export interface HonoContext {
  readonly req: {
    header(name: string): string | undefined
    text(): Promise<string>
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
