import { commandHttpContract, listedOrigin } from '../../test/contract/command-http-contract.ts'
import { listen, nodeListener } from '../../test/integrations/listen.ts'
import { readTokenHeader, fetchCommand } from './fetch.ts'

const principal = (request: Request): string | undefined => request.headers.get('x-user') || undefined

await commandHttpContract('fetch', async ({ commands, deposit, note }) => {
  const routes: Record<string, (request: Request) => Response | Promise<Response>> = {
    '/deposit': fetchCommand(commands, deposit, { principal, allowedOrigins: [listedOrigin] }),
    '/note': fetchCommand(commands, note, { principal, status: 201 }),
    '/token': (request) => new Response(readTokenHeader(request.headers)),
  }
  return await listen(
    nodeListener((request) => routes[new URL(request.url).pathname]?.(request) ?? new Response(null, { status: 404 })),
  )
})
