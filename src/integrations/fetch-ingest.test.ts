import { ingestHttpContract } from '../../test/contract/ingest-http-contract.ts'
import { listen, nodeListener } from '../../test/integrations/listen.ts'
import { fetchIngest } from './fetch.ts'

const principal = (request: Request): string | undefined => request.headers.get('x-user') ?? undefined

ingestHttpContract('fetch', async ({ open, own, slow }) => {
  const routes = {
    '/readings': fetchIngest(open, { path: '/readings', allowedOrigins: ['https://app.example.com'] }),
    '/own/readings': fetchIngest(own, { path: '/own/readings', principal, scope: 'principal' }),
    '/slow': fetchIngest(slow, { path: '/slow/' }),
  }
  return await listen(
    nodeListener(async (request) => {
      const { pathname } = new URL(request.url)
      const route = Object.entries(routes).find(([path]) => pathname.startsWith(path))
      return (await route?.[1](request)) ?? new Response(null, { status: 404 })
    }),
  )
})
